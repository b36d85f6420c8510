"""Every sentence that a report assembles: functions and templates from numbers and names to text."""

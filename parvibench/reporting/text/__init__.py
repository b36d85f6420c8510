"""Every sentence that a report puts together: functions from numbers and names to text."""

"""User-defined samplers: functions and classes for one replicate, and templates."""

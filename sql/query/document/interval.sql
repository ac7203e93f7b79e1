-- Returns an interval from its text.
select $text::interval

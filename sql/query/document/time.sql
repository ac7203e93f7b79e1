-- Returns a time from its text.
select $text::timestamptz

-- A time from its text.
select $text::timestamptz

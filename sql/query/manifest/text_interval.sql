-- An interval from its text.
select $text::interval

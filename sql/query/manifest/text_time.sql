-- A time from its text. $1 text
select $1::timestamptz

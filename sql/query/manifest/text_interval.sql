-- An interval from its text. $1 text
select $1::interval

-- Gives a token back that is held. $1 name, $2 token, $3 now
delete from trax.concurrency_token t
where t.name = $1
    and t.token = $2
    and t.expires_at > $3

-- Releases a held token.
delete from trax.concurrency_token t
where t.name = $name
    and t.token = $token
    and t.expires_at > $now

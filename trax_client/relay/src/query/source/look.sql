select l.id, l.key::text, l.unique_key, l.document, l.code, l.error
from trax_outbox.look($1::uuid, $2::uuid[], $3, $4, $5, $6) l

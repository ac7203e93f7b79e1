update trax_outbox.relay
set asleep = $1

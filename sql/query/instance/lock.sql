-- Lets one session after the other adopt.
lock table trax.adoption in share row exclusive mode

-- Serializes adoptions.
lock table trax.adoption in share row exclusive mode

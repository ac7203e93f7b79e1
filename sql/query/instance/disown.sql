-- Removes the mark of adoption.
delete from trax.adoption a

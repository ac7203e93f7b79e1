-- Takes the mark of adoption away.
delete from trax.adoption a

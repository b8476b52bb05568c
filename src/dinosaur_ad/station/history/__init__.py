"""What the station has seen and what people said of it: a journal on the local disk, a database, pictures.

    judged part -> Recorder -> Journal (local disk, fsync) -> History (database and picture files)

A part is safe once it is in the journal; the database may be away meanwhile.
"""

from my_pipelines import ingest
ingest.sync(keys=("event_id",))

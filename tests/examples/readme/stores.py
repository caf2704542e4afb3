from ematix_flow import DeltaLocalConnection, DeltaS3Connection, ObjectStoreLocalConnection

local_lake = DeltaLocalConnection(name="local_lake", path="/var/data/lake")

lake = DeltaS3Connection(
    name="lake",
    endpoint="https://s3.amazonaws.com",
    bucket="ematix-lake",
    region="us-east-1",
    access_key_id="${AWS_ACCESS_KEY_ID}",
    secret_access_key="${AWS_SECRET_ACCESS_KEY}",
    prefix="tables",
)

archive = ObjectStoreLocalConnection(name="archive", path="archive", format="csv")

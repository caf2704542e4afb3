from typing import Annotated
from ematix_flow import ematix, natural_key, pk
from ematix_flow.types import BigInt, Text

@ematix.table(schema="analytics")
class CustomerDim:
    row_id: Annotated[BigInt, pk()]
    customer_id: Annotated[BigInt, natural_key()]
    email: Text | None

@ematix.pipeline(
    target=CustomerDim,
    mode="scd2",
    compare_columns=["email"],
    schedule="0 * * * *",
)
def sync(conn):
    return "SELECT row_id, customer_id, email FROM raw.customers"

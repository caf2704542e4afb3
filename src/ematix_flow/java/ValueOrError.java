package ematix.flow;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** `flow_value_or_error(struct)` of Spark SQL: the first field, or an error with the text of the second where that has one. */
public final class ValueOrError extends OfOneValue {
  private static final long serialVersionUID = 1L;

  public ValueOrError(Expression child) {
    super(child);
  }

  @Override
  public Object eval(InternalRow row) {
    InternalRow pair = (InternalRow) child.eval(row);
    if (pair == null) {
      return null;
    }
    if (!pair.isNullAt(1)) {
      throw new IllegalArgumentException(pair.getUTF8String(1).toString());
    }
    return pair.isNullAt(0) ? null : pair.get(0, dataType());
  }

  @Override
  public DataType dataType() {
    return ((StructType) child.dataType()).fields()[0].dataType();
  }

  @Override
  public String prettyName() {
    return "flow_value_or_error";
  }

  @Override
  Expression of(Expression other) {
    return new ValueOrError(other);
  }
}

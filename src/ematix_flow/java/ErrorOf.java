package ematix.flow;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** `flow_error(expression)` of Spark SQL: the first line of the error that a row's value ends in, NULL where it has a value. */
public final class ErrorOf extends OfOneValue {
  private static final long serialVersionUID = 1L;
  private static final int MOST = 500;

  public ErrorOf(Expression child) {
    super(child);
  }

  @Override
  public Object eval(InternalRow row) {
    try {
      child.eval(row);
      return null;
    } catch (Exception error) {
      return UTF8String.fromString(said(error));
    }
  }

  private static String said(Exception error) {
    String message = error.getMessage();
    String text = message == null || message.isBlank() ? error.getClass().getSimpleName() : message.strip();
    String line = text.lines().findFirst().orElse(text);
    return line.substring(0, Math.min(line.length(), MOST));
  }

  @Override
  public DataType dataType() {
    return DataTypes.StringType;
  }

  @Override
  public String prettyName() {
    return "flow_error";
  }

  @Override
  Expression of(Expression other) {
    return new ErrorOf(other);
  }
}

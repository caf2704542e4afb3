package ematix.flow;

import java.util.function.Function;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.classic.SparkSession;

/** Makes functions known to a session by which a query tells what is wrong with each row instead of failing at the first. */
public final class RowErrors {
  private RowErrors() {}

  /** Register `flow_error`, `flow_value` (NULL instead of an error) and `flow_value_or_error`. */
  public static void register(SparkSession session) {
    FunctionRegistry known = session.sessionState().functionRegistry();
    register(known, "flow_error", ErrorOf.class, ErrorOf::new);
    register(known, "flow_value", TryEval.class, TryEval::new);
    register(known, "flow_value_or_error", ValueOrError.class, ValueOrError::new);
  }

  private static void register(FunctionRegistry known, String name, Class<?> of, Function<Expression, Expression> make) {
    known.registerFunction(
        new FunctionIdentifier(name),
        new ExpressionInfo(of.getName(), name),
        arguments -> make.apply(arguments.head()));
  }
}

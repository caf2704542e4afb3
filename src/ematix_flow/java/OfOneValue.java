package ematix.flow;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What Spark asks of a function of one value that is written in Java; what it makes of the value is said below. */
abstract class OfOneValue extends Expression implements CodegenFallback, Serializable {
  private static final long serialVersionUID = 1L;

  final Expression child;

  OfOneValue(Expression child) {
    this.child = child;
  }

  abstract Expression of(Expression other);

  @Override
  public Seq<Expression> children() {
    return CollectionConverters.asScala(List.of(child)).toList();
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> others) {
    return of(others.head());
  }

  @Override
  public boolean nullable() {
    return true;
  }

  @Override
  public boolean foldable() {
    return child.foldable();
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    return CodegenFallback.super.doGenCode(context, code);
  }

  @Override
  public Object productElement(int number) {
    return child;
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public boolean canEqual(Object other) {
    return other != null && other.getClass() == getClass();
  }

  @Override
  public boolean equals(Object other) {
    return canEqual(other) && ((OfOneValue) other).child.equals(child);
  }

  @Override
  public int hashCode() {
    return 31 * getClass().hashCode() + child.hashCode();
  }
}

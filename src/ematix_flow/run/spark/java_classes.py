"""Our Java classes, called from Python: they come into a session that runs already, whoever started it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.lake_engine import JAR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JavaClasses:
    """The classes as one session loads them."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        spark.sql(f"ADD JAR '{JAR}'")
        self._gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - the way to Java
        self._loader: Any = session._jsparkSession.sharedState().jarClassLoader()  # noqa: SLF001

    def enter(self) -> None:
        """Let this thread find the classes by their names, and the threads that Java starts from it."""
        self._gateway.jvm.java.lang.Thread.currentThread().setContextClassLoader(self._loader)

    def call(self, class_name: str, method: str, *arguments: Any) -> Any:
        """Call a static method and return what it returns."""
        java_class = self._gateway.jvm.java.lang.Class.forName(class_name, True, self._loader)  # noqa: FBT003 - as Java has it
        array = self._gateway.new_array(self._gateway.jvm.java.lang.Object, len(arguments))
        for number, argument in enumerate(arguments):
            array[number] = argument
        return next(one for one in java_class.getMethods() if one.getName() == method).invoke(None, array)

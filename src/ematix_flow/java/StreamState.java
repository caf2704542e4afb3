package ematix.flow;

import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * What a stream remembers between batches, by time and key: windows, sessions, joins and rows that came before.
 *
 * <p>Values are texts that nobody reads here: SQL has put them together before, and takes them apart behind. Times are
 * microseconds. A window, session or row is over when the watermark has reached its end.
 */
public final class StreamState {
    /** What became of values: closed window, late, pair, row; with the key and the bounds they are in. */
    static final StructType RESULT = new StructType()
            .add("kind", DataTypes.StringType)
            .add("key", DataTypes.StringType)
            .add("start", DataTypes.LongType)
            .add("end", DataTypes.LongType)
            .add("block", DataTypes.StringType)
            .add("other", DataTypes.StringType);

    private StreamState() {}

    /**
     * Returns what an operator makes of events, which are: key, side (of a join), beginning and end (of a window), time and
     * values.
     */
    public static Dataset<Row> apply(
            Dataset<Row> events,
            String kind,
            long allowed,
            long gap,
            long longest,
            long least,
            long most,
            String outer) {
        StateOperator.Settings settings = new StateOperator.Settings(allowed, gap, longest, least, most, outer);
        StatefulProcessor<String, Row, Row> operator = switch (kind) {
            case "window" -> new Windows(settings);
            case "session" -> new Sessions(settings);
            case "join" -> new Joins(settings);
            case "dedupe" -> new Dedupe(settings);
            default -> throw new IllegalArgumentException(kind);
        };
        // The row that carries the time of a range has no key. A filter would be moved in front of the watermark.
        return events.groupByKey((MapFunction<Row, String>) row -> row.getString(0), Encoders.STRING())
                .transformWithState(operator, TimeMode.EventTime(), OutputMode.Append(), Encoders.row(RESULT));
    }
}

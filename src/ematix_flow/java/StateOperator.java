package ematix.flow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** What is common to all that remember: events of a key in, results out, and a call when the watermark has reached a time. */
abstract class StateOperator extends StatefulProcessor<String, Row, Row> {
    /** Settings of one operator; those that it does not use are 0. */
    record Settings(long allowed, long gap, long longest, long least, long most, String outer)
            implements Serializable {}

    /** Microseconds from the year 1 to 1970: what Spark knows as time is later by that, because it begins with 0. */
    private static final long ERA = 62_135_596_800_000_000L;

    final Settings settings;

    StateOperator(Settings settings) {
        this.settings = settings;
    }

    @Override
    public Iterator<Row> handleInputRows(String key, Iterator<Row> rows, TimerValues timers) {
        return given(key.isEmpty() ? List.of() : results(key, rows, watermark(timers)));
    }

    @Override
    public Iterator<Row> handleExpiredTimer(String key, TimerValues timers, ExpiredTimerInfo expired) {
        return given(expired(key, watermark(timers)));
    }

    /** Takes up events of a key and returns what comes of that at once. */
    abstract List<Row> results(String key, Iterator<Row> rows, long watermark);

    /** Returns what is over for a key, now that the watermark has reached a time. */
    abstract List<Row> expired(String key, long watermark);

    /** Sets a timer for the time at which the watermark reaches one. */
    void wakeAt(long micros) {
        getHandle().registerTimer(Math.floorDiv(micros + ERA + 999, 1000));
    }

    static Row result(String kind, String key, long start, long end, String block, String other) {
        return RowFactory.create(kind, key, start, end, block, other);
    }

    /** Events in the order of their times. */
    static List<Row> sorted(Iterator<Row> rows) {
        List<Row> events = new ArrayList<>();
        while (rows.hasNext()) {
            events.add(rows.next());
        }
        events.sort(Comparator.comparingLong(row -> row.getLong(4)));
        return events;
    }

    private static long watermark(TimerValues timers) {
        return timers.getCurrentWatermarkInMs() * 1000 - ERA;
    }

    private static Iterator<Row> given(List<Row> results) {
        return CollectionConverters.asScala(results.iterator());
    }
}

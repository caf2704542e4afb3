package ematix.flow;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;

/** Windows of a fixed length: a key is one window, or a part of its groups. */
final class Windows extends StateOperator {
    private transient ListState<String> blocks;
    private transient ValueState<Boolean> closed;

    Windows(Settings settings) {
        super(settings);
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
        blocks = getHandle().getListState("blocks", Encoders.STRING(), TTLConfig.NONE());
        closed = getHandle().getValueState("closed", Encoders.BOOLEAN(), TTLConfig.NONE());
    }

    @Override
    List<Row> results(String key, Iterator<Row> rows, long watermark) {
        List<Row> results = new ArrayList<>();
        List<String> added = new ArrayList<>();
        long start = 0;
        long end = 0;
        while (rows.hasNext()) {
            Row row = rows.next();
            start = row.getLong(2);
            end = row.getLong(3);
            if (end + settings.allowed() <= watermark) {
                results.add(result("late", key, start, end, row.getString(5), null));
            } else {
                added.add(row.getString(5));
            }
        }
        if (added.isEmpty()) {
            return results;
        }
        blocks.appendList(added.toArray(new String[0]));
        if (closed.exists()) {
            emit(key, start, end, results);
        } else {
            wakeAt(end);
        }
        return results;
    }

    @Override
    List<Row> expired(String key, long watermark) {
        List<Row> results = new ArrayList<>();
        String[] bounds = key.split(":");
        long end = Long.parseLong(bounds[1]);
        if (!closed.exists()) {
            emit(key, Long.parseLong(bounds[0]), end, results);
            closed.update(true);
        }
        if (end + settings.allowed() > watermark) {
            wakeAt(end + settings.allowed());
        } else {
            blocks.clear();
            closed.clear();
        }
        return results;
    }

    private void emit(String key, long start, long end, List<Row> results) {
        Iterator<String> kept = blocks.get();
        while (kept.hasNext()) {
            results.add(result("close", key, start, end, kept.next(), null));
        }
    }
}

package ematix.flow;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;

/** The first row of a key within a time. */
final class Dedupe extends StateOperator {
    /** The newest time of the rows that were let through. */
    private transient ValueState<Long> seen;

    /** The times before it that other rows can still be near to, with blanks between them; states of before have none. */
    private transient ValueState<String> earlier;

    Dedupe(Settings settings) {
        super(settings);
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
        seen = getHandle().getValueState("seen", Encoders.LONG(), TTLConfig.NONE());
        earlier = getHandle().getValueState("earlier", Encoders.STRING(), TTLConfig.NONE());
    }

    @Override
    List<Row> results(String key, Iterator<Row> rows, long watermark) {
        List<Row> results = new ArrayList<>();
        TreeSet<Long> times = known();
        boolean isNew = false;
        for (Row row : sorted(rows)) {
            long ts = row.getLong(4);
            if (!times.subSet(ts - settings.longest(), true, ts + settings.longest(), true).isEmpty()) {
                results.add(result("duplicate", key, ts, ts, null, null));
                continue;
            }
            results.add(result("row", key, ts, ts, row.getString(5), null));
            if (times.isEmpty() || ts < times.first()) {
                wakeAt(ts + settings.longest() + 1);
            }
            times.add(ts);
            isNew = true;
        }
        if (isNew) {
            remember(times);
        }
        return results;
    }

    @Override
    List<Row> expired(String key, long watermark) {
        TreeSet<Long> times = known();
        times.headSet(watermark - settings.longest()).clear();
        if (!times.isEmpty()) {
            wakeAt(times.first() + settings.longest() + 1);
        }
        remember(times);
        return List.of();
    }

    private TreeSet<Long> known() {
        TreeSet<Long> times = new TreeSet<>();
        Long newest = seen.get();
        if (newest != null) {
            times.add(newest);
        }
        String before = earlier.get();
        if (before != null) {
            for (String time : before.split(" ")) {
                times.add(Long.parseLong(time));
            }
        }
        return times;
    }

    private void remember(TreeSet<Long> times) {
        if (times.isEmpty()) {
            seen.clear();
        } else {
            seen.update(times.last());
        }
        if (times.size() > 1) {
            earlier.update(times.headSet(times.last()).stream().map(String::valueOf).collect(Collectors.joining(" ")));
        } else {
            earlier.clear();
        }
    }
}

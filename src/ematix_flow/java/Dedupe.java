package ematix.flow;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
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
        Known before = known();
        TreeSet<Long> times = before.times();
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
        }
        remember(times, before);
        return results;
    }

    @Override
    List<Row> expired(String key, long watermark) {
        Known before = known();
        TreeSet<Long> times = before.times();
        times.headSet(watermark - settings.longest()).clear();
        if (!times.isEmpty()) {
            wakeAt(times.first() + settings.longest() + 1);
        }
        remember(times, before);
        return List.of();
    }

    private Known known() {
        Long newest = seen.get();
        // Where there is no newest time there are none before it either.
        return new Known(newest, newest == null ? null : earlier.get());
    }

    /** Writes what is another one than before: also to clear what is not there is a write, of every new key one. */
    private void remember(TreeSet<Long> times, Known before) {
        Known now = Known.of(times);
        if (now.newest() == null && before.newest() != null) {
            seen.clear();
        } else if (!Objects.equals(now.newest(), before.newest())) {
            seen.update(now.newest());
        }
        if (now.earlier() == null && before.earlier() != null) {
            earlier.clear();
        } else if (!Objects.equals(now.earlier(), before.earlier())) {
            earlier.update(now.earlier());
        }
    }

    /** The times of a key as they are remembered; NULL where there are none. */
    private record Known(Long newest, String earlier) {
        static Known of(TreeSet<Long> times) {
            String earlier = times.size() < 2
                    ? null
                    : times.headSet(times.last()).stream().map(String::valueOf).collect(Collectors.joining(" "));
            return new Known(times.isEmpty() ? null : times.last(), earlier);
        }

        TreeSet<Long> times() {
            TreeSet<Long> times = new TreeSet<>();
            if (newest != null) {
                times.add(newest);
            }
            if (earlier != null) {
                for (String time : earlier.split(" ")) {
                    times.add(Long.parseLong(time));
                }
            }
            return times;
        }
    }
}

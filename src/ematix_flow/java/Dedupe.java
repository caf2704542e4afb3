package ematix.flow;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;

/** The first row of a key within a time. */
final class Dedupe extends StateOperator {
    private transient ValueState<Long> seen;

    Dedupe(Settings settings) {
        super(settings);
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
        seen = getHandle().getValueState("seen", Encoders.LONG(), TTLConfig.NONE());
    }

    @Override
    List<Row> results(String key, Iterator<Row> rows, long watermark) {
        List<Row> results = new ArrayList<>();
        Long first = seen.get();
        for (Row row : sorted(rows)) {
            long ts = row.getLong(4);
            if (first != null && Math.abs(ts - first) <= settings.longest()) {
                results.add(result("duplicate", key, ts, ts, null, null));
                continue;
            }
            results.add(result("row", key, ts, ts, row.getString(5), null));
            if (first == null || ts > first) {
                first = ts;
                seen.update(ts);
                wakeAt(ts + settings.longest() + 1);
            }
        }
        return results;
    }

    @Override
    List<Row> expired(String key, long watermark) {
        Long first = seen.get();
        if (first != null && first + settings.longest() < watermark) {
            seen.clear();
        } else if (first != null) {
            wakeAt(first + settings.longest() + 1);
        }
        return List.of();
    }
}

package ematix.flow;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Row;

/** Pairs of rows of two sides with one key, whose times are near enough. */
final class Joins extends NotingOperator {
    /** Rows that wait for partners; a 1 or 0 in front of them says whether they had one. */
    private static final char LEFT = 'l';

    private static final char RIGHT = 'r';

    Joins(Settings settings) {
        super(settings);
    }

    @Override
    long added(String key, List<Row> events, long watermark, Notes notes, List<Row> results) {
        long next = Notes.NEVER;
        List<Row> behind = new ArrayList<>();
        for (Row row : events) {
            long ts = row.getLong(4);
            long last = lastTime(isLeft(row), ts);
            if (last < watermark) {
                behind.add(row);
                continue;
            }
            boolean matched = pairs(key, row, notes, results);
            notes.add(isLeft(row) ? LEFT : RIGHT, ts, (matched ? "1" : "0") + row.getString(5));
            next = Math.min(next, last + 1);
        }
        // Rows that nobody waits for any more: a partner of them may still wait, or have come with them.
        for (Row row : behind) {
            if (!pairs(key, row, notes, results)) {
                results.add(result("late", key, row.getLong(4), isLeft(row) ? 0 : 1, row.getString(5), null));
            }
        }
        return next;
    }

    @Override
    long ended(String key, long watermark, Notes notes, List<Row> results) {
        return Math.min(
                forget(key, true, watermark, notes.of(LEFT), results),
                forget(key, false, watermark, notes.of(RIGHT), results));
    }

    private static boolean isLeft(Row row) {
        return row.getString(1).equals("left");
    }

    /** The newest time at which a row of the other side can come that fits. */
    private long lastTime(boolean isLeft, long ts) {
        return (isLeft ? ts + settings.most() : ts - settings.least()) + settings.allowed();
    }

    /** Gives out a row with every one of the other side that fits; returns whether there was any. */
    private boolean pairs(String key, Row row, Notes notes, List<Row> results) {
        boolean isLeft = isLeft(row);
        long ts = row.getLong(4);
        String block = row.getString(5);
        Map<Long, List<String>> others = isLeft
                ? notes.of(RIGHT).subMap(ts + settings.least(), true, ts + settings.most(), true)
                : notes.of(LEFT).subMap(ts - settings.most(), true, ts - settings.least(), true);
        for (List<String> rows : others.values()) {
            for (int index = 0; index < rows.size(); index++) {
                String other = rows.get(index).substring(1);
                results.add(isLeft ? pair(key, block, other) : pair(key, other, block));
                rows.set(index, "1" + other);
            }
        }
        return !others.isEmpty();
    }

    /** Gives out and forgets rows of a side that no partner can come for; returns when the first of the others is over. */
    private long forget(String key, boolean isLeft, long watermark, TreeMap<Long, List<String>> rows, List<Row> results) {
        boolean wanted = settings.outer().equals("full_outer")
                || settings.outer().equals(isLeft ? "left_outer" : "right_outer");
        while (!rows.isEmpty()) {
            long last = lastTime(isLeft, rows.firstKey());
            if (last >= watermark) {
                return last + 1;
            }
            for (String row : rows.pollFirstEntry().getValue()) {
                if (wanted && row.charAt(0) == '0') {
                    String block = row.substring(1);
                    results.add(isLeft ? pair(key, block, null) : pair(key, null, block));
                }
            }
        }
        return Notes.NEVER;
    }

    private static Row pair(String key, String left, String right) {
        return result("pair", key, 0, 0, left, right);
    }
}

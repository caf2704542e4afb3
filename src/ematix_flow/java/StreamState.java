package ematix.flow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a stream remembers between batches, by time and key: windows, sessions, joins and rows that came before.
 *
 * <p>Values are texts that nobody reads here: SQL has put them together before, and takes them apart behind. Times are
 * microseconds. A window, session or row is over when the watermark has reached its end.
 */
public final class StreamState {
    /** key, side (of a join), beginning and end (of a window), time of the event, values. */
    static final StructType EVENT = new StructType()
            .add("key", DataTypes.StringType)
            .add("side", DataTypes.StringType)
            .add("start", DataTypes.LongType)
            .add("end", DataTypes.LongType)
            .add("ts", DataTypes.LongType)
            .add("block", DataTypes.StringType);

    /** What became of values: closed window, late, pair, row; with the key and the bounds they are in. */
    static final StructType RESULT = new StructType()
            .add("kind", DataTypes.StringType)
            .add("key", DataTypes.StringType)
            .add("start", DataTypes.LongType)
            .add("end", DataTypes.LongType)
            .add("block", DataTypes.StringType)
            .add("other", DataTypes.StringType);

    /** Microseconds from the year 1 to 1970: what Spark knows as time is later by that, because it begins with 0. */
    static final long ERA = 62_135_596_800_000_000L;

    private StreamState() {}

    /** Settings of one operator; those that it does not use are 0. */
    public record Settings(
            long allowed, long gap, long longest, long least, long most, String outer)
            implements Serializable {}

    /** Returns what an operator makes of events. */
    public static Dataset<Row> apply(
            Dataset<Row> events,
            String kind,
            long allowed,
            long gap,
            long longest,
            long least,
            long most,
            String outer) {
        Settings settings = new Settings(allowed, gap, longest, least, most, outer);
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

    private abstract static class Operator extends StatefulProcessor<String, Row, Row> {
        final Settings settings;

        @Override
        public Iterator<Row> handleInputRows(String key, Iterator<Row> rows, TimerValues timers) {
            return key.isEmpty() ? given(new ArrayList<>()) : given(results(key, rows, watermark(timers)));
        }

        @Override
        public Iterator<Row> handleExpiredTimer(String key, TimerValues timers, ExpiredTimerInfo expired) {
            return given(expired(key, watermark(timers)));
        }

        /** Takes up events of a key and returns what comes of that at once. */
        abstract List<Row> results(String key, Iterator<Row> rows, long watermark);

        /** Returns what is over for a key, now that the watermark has reached a time. */
        abstract List<Row> expired(String key, long watermark);

        Operator(Settings settings) {
            this.settings = settings;
        }

        /** A timer for the moment at which the watermark reaches a time. */
        void wakeAt(long micros) {
            getHandle().registerTimer(Math.floorDiv(micros + ERA + 999, 1000));
        }

        long watermark(TimerValues timers) {
            return timers.getCurrentWatermarkInMs() * 1000 - ERA;
        }
    }

    private static Row result(String kind, String key, long start, long end, String block, String other) {
        return RowFactory.create(kind, key, start, end, block, other);
    }

    private static Iterator<Row> given(List<Row> results) {
        return CollectionConverters.asScala(results.iterator());
    }

    /** What a map of the state holds, in the order of its times. */
    private static TreeMap<Long, String> known(MapState<Long, String> state) {
        TreeMap<Long, String> known = new TreeMap<>();
        Iterator<scala.Tuple2<Long, String>> entries = state.iterator();
        while (entries.hasNext()) {
            scala.Tuple2<Long, String> entry = entries.next();
            known.put(entry._1(), entry._2());
        }
        return known;
    }

    private static List<Row> sorted(Iterator<Row> rows) {
        List<Row> events = new ArrayList<>();
        while (rows.hasNext()) {
            events.add(rows.next());
        }
        events.sort(java.util.Comparator.comparingLong(row -> row.getLong(4)));
        return events;
    }

    /** Windows of a fixed length: a key is one window, or a part of its groups. */
    private static final class Windows extends Operator {
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
                if (end + settings.allowed <= watermark) {
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
            if (end + settings.allowed > watermark) {
                wakeAt(end + settings.allowed);
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

    /** Sessions of a key: events without a longer pause than the gap, up to a longest duration. */
    private static final class Sessions extends Operator {
        private transient MapState<Long, String> events;
        private transient MapState<Long, String> emitted;

        Sessions(Settings settings) {
            super(settings);
        }

        @Override
        public void init(OutputMode mode, TimeMode time) {
            events = getHandle().getMapState("events", Encoders.LONG(), Encoders.STRING(), TTLConfig.NONE());
            emitted = getHandle().getMapState("emitted", Encoders.LONG(), Encoders.STRING(), TTLConfig.NONE());
        }

        @Override
        List<Row> results(String key, Iterator<Row> rows, long watermark) {
            TreeMap<Long, String> known = known(events);
            List<Row> results = new ArrayList<>();
            List<Row> arrived = sorted(rows);
            // From the newest to the oldest, so that an old event finds the open session it leads up to.
            for (int index = arrived.size() - 1; index >= 0; index--) {
                Row row = arrived.get(index);
                long ts = row.getLong(4);
                if (ts + settings.gap + settings.allowed <= watermark && !touches(known, ts, watermark)) {
                    results.add(result("late", key, ts, ts + settings.gap, row.getString(5), null));
                } else {
                    String block = known.merge(ts, row.getString(5), (one, other) -> one + "\n" + other);
                    events.updateValue(ts, block);
                }
            }
            close(key, known, watermark, results);
            return results;
        }

        @Override
        List<Row> expired(String key, long watermark) {
            List<Row> results = new ArrayList<>();
            close(key, known(events), watermark, results);
            return results;
        }

        /** Whether an event belongs to a session that is still open, or can be opened again. */
        private boolean touches(TreeMap<Long, String> known, long ts, long watermark) {
            long over = watermark - settings.gap - settings.allowed;
            if (known.isEmpty() || known.lastKey() <= over) {
                return false;
            }
            Long next = known.ceilingKey(ts);
            Long before = known.floorKey(ts);
            boolean near = next != null && next - ts <= settings.gap || before != null && ts - before <= settings.gap;
            if (!near) {
                return false;
            }
            TreeMap<Long, String> with = new TreeMap<>(known);
            with.put(ts, "");
            for (long[] session : sessions(with)) {
                if (session[0] <= ts && ts <= session[1]) {
                    return session[1] > over;
                }
            }
            return false;
        }

        /** First and last event of every session, in their order. */
        private List<long[]> sessions(TreeMap<Long, String> known) {
            List<long[]> sessions = new ArrayList<>();
            long[] session = null;
            for (long ts : known.keySet()) {
                if (session == null || ts - session[1] > settings.gap || ts - session[0] > settings.longest) {
                    session = new long[] {ts, ts};
                    sessions.add(session);
                }
                session[1] = ts;
            }
            return sessions;
        }

        /** Give out what is over and was not given out as it is now; forget what no event can change any more. */
        private void close(String key, TreeMap<Long, String> known, long watermark, List<Row> results) {
            long next = Long.MAX_VALUE;
            for (long[] session : sessions(known)) {
                long end = session[1] + settings.gap;
                if (end > watermark) {
                    next = Math.min(next, end);
                    continue;
                }
                java.util.NavigableMap<Long, String> inside = known.subMap(session[0], true, session[1], true);
                String blocks = String.join("\n", inside.values());
                String sign = end + ":" + blocks.length() + ":" + blocks.hashCode();
                if (!sign.equals(emitted.getValue(session[0]))) {
                    results.add(result("close", key, session[0], end, blocks, null));
                    emitted.updateValue(session[0], sign);
                }
                if (end + settings.allowed > watermark) {
                    next = Math.min(next, end + settings.allowed);
                    continue;
                }
                for (long ts : inside.keySet()) {
                    events.removeKey(ts);
                    emitted.removeKey(ts);
                }
            }
            if (next != Long.MAX_VALUE) {
                wakeAt(next);
            }
        }
    }

    /** Pairs of rows of two sides with one key, whose times are near enough. */
    private static final class Joins extends Operator {
        private transient MapState<Long, String> left;
        private transient MapState<Long, String> right;

        Joins(Settings settings) {
            super(settings);
        }

        @Override
        public void init(OutputMode mode, TimeMode time) {
            left = getHandle().getMapState("left", Encoders.LONG(), Encoders.STRING(), TTLConfig.NONE());
            right = getHandle().getMapState("right", Encoders.LONG(), Encoders.STRING(), TTLConfig.NONE());
        }

        @Override
        List<Row> results(String key, Iterator<Row> rows, long watermark) {
            TreeMap<Long, String> lefts = known(left);
            TreeMap<Long, String> rights = known(right);
            List<Row> results = new ArrayList<>();
            for (Row row : sorted(rows)) {
                boolean isLeft = row.getString(1).equals("left");
                long ts = row.getLong(4);
                String block = row.getString(5);
                if (lastMoment(isLeft, ts) < watermark) {
                    results.add(result("late", key, ts, isLeft ? 0 : 1, block, null));
                    continue;
                }
                boolean matched = isLeft
                        ? pairs(key, block, true, rights.subMap(ts + settings.least, true, ts + settings.most, true),
                                right, results)
                        : pairs(key, block, false, lefts.subMap(ts - settings.most, true, ts - settings.least, true),
                                left, results);
                String entry = (matched ? "1" : "0") + block;
                String entries = (isLeft ? lefts : rights).merge(ts, entry, (one, other) -> one + "\n" + other);
                (isLeft ? left : right).updateValue(ts, entries);
                wakeAt(lastMoment(isLeft, ts) + 1);
            }
            return results;
        }

        @Override
        List<Row> expired(String key, long watermark) {
            List<Row> results = new ArrayList<>();
            // Rows wait by the times of now, and their timers were set by those of their day, which may have been shorter.
            long next = Math.min(forget(key, true, watermark, results), forget(key, false, watermark, results));
            if (next != Long.MAX_VALUE) {
                wakeAt(next + 1);
            }
            return results;
        }

        /** The newest time at which a row of the other side can come that fits. */
        private long lastMoment(boolean isLeft, long ts) {
            return (isLeft ? ts + settings.most : ts - settings.least) + settings.allowed;
        }

        private boolean pairs(
                String key,
                String block,
                boolean isLeft,
                java.util.SortedMap<Long, String> others,
                MapState<Long, String> state,
                List<Row> results) {
            for (java.util.Map.Entry<Long, String> other : others.entrySet()) {
                StringBuilder marked = new StringBuilder();
                for (String entry : other.getValue().split("\n")) {
                    String partner = entry.substring(1);
                    results.add(
                            isLeft
                                    ? result("pair", key, 0, 0, block, partner)
                                    : result("pair", key, 0, 0, partner, block));
                    marked.append(marked.isEmpty() ? "1" : "\n1").append(partner);
                }
                if (!other.getValue().contentEquals(marked)) {
                    other.setValue(marked.toString());
                    state.updateValue(other.getKey(), marked.toString());
                }
            }
            return !others.isEmpty();
        }

        /** Gives out and forgets rows of a side whose last moment is over; returns the first one of those that wait on. */
        private long forget(String key, boolean isLeft, long watermark, List<Row> results) {
            long next = Long.MAX_VALUE;
            MapState<Long, String> state = isLeft ? left : right;
            boolean wanted = settings.outer.equals("full_outer")
                    || settings.outer.equals(isLeft ? "left_outer" : "right_outer");
            for (java.util.Map.Entry<Long, String> one : known(state).entrySet()) {
                if (lastMoment(isLeft, one.getKey()) >= watermark) {
                    next = Math.min(next, lastMoment(isLeft, one.getKey()));
                    continue;
                }
                for (String entry : one.getValue().split("\n")) {
                    if (wanted && entry.charAt(0) == '0') {
                        String block = entry.substring(1);
                        results.add(
                                isLeft
                                        ? result("pair", key, 0, 0, block, null)
                                        : result("pair", key, 0, 0, null, block));
                    }
                }
                state.removeKey(one.getKey());
            }
            return next;
        }
    }

    /** The first row of a key within a time. */
    private static final class Dedupe extends Operator {
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
            Long first = seen.exists() ? seen.get() : null;
            for (Row row : sorted(rows)) {
                long ts = row.getLong(4);
                if (first != null && Math.abs(ts - first) <= settings.longest) {
                    results.add(result("duplicate", key, ts, ts, null, null));
                    continue;
                }
                results.add(result("row", key, ts, ts, row.getString(5), null));
                if (first == null || ts > first) {
                    first = ts;
                    seen.update(ts);
                    wakeAt(ts + settings.longest + 1);
                }
            }
            return results;
        }

        @Override
        List<Row> expired(String key, long watermark) {
            if (!seen.exists()) {
                return List.of();
            }
            if (seen.get() + settings.longest < watermark) {
                seen.clear();
            } else {
                wakeAt(seen.get() + settings.longest + 1);
            }
            return List.of();
        }
    }
}

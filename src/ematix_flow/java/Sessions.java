package ematix.flow;

import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.spark.sql.Row;

/** Sessions of a key: events without a longer pause than the gap, up to a longest duration. */
final class Sessions extends NotingOperator {
    /** Values of an event. */
    private static final char EVENT = 'e';

    /** What was given out of a session that began at a time, so that it is given out again only if that is different. */
    private static final char GIVEN = 'g';

    Sessions(Settings settings) {
        super(settings);
    }

    @Override
    long added(String key, List<Row> events, long watermark, Notes notes, List<Row> results) {
        TreeMap<Long, List<String>> known = notes.of(EVENT);
        // From the newest to the oldest, so that an old event finds the open session it leads up to.
        for (int index = events.size() - 1; index >= 0; index--) {
            Row row = events.get(index);
            long ts = row.getLong(4);
            String block = row.getString(5);
            if (ts + settings.gap() + settings.allowed() <= watermark && !touches(known, ts, watermark)) {
                results.add(result("late", key, ts, ts + settings.gap(), block, null));
            } else {
                notes.add(EVENT, ts, block);
            }
        }
        return ended(key, watermark, notes, results);
    }

    @Override
    long ended(String key, long watermark, Notes notes, List<Row> results) {
        long next = Notes.NEVER;
        TreeMap<Long, List<String>> known = notes.of(EVENT);
        TreeMap<Long, List<String>> given = notes.of(GIVEN);
        for (long[] session : sessions(known)) {
            long end = session[1] + settings.gap();
            if (end > watermark) {
                next = Math.min(next, end);
                continue;
            }
            NavigableMap<Long, List<String>> inside = known.subMap(session[0], true, session[1], true);
            String blocks = inside.values().stream().flatMap(List::stream).collect(Collectors.joining("\n"));
            List<String> sign = List.of(end + ":" + blocks.length() + ":" + blocks.hashCode());
            if (!sign.equals(given.put(session[0], sign))) {
                results.add(result("close", key, session[0], end, blocks, null));
            }
            if (end + settings.allowed() > watermark) {
                next = Math.min(next, end + settings.allowed());
                continue;
            }
            // A session may have become a part of one that began earlier.
            given.subMap(session[0], true, session[1], true).clear();
            inside.clear();
        }
        return next;
    }

    /** Whether an event belongs to a session that is still open, or can be opened again. */
    private boolean touches(TreeMap<Long, List<String>> known, long ts, long watermark) {
        long over = watermark - settings.gap() - settings.allowed();
        if (known.isEmpty() || known.lastKey() <= over) {
            return false;
        }
        Long next = known.ceilingKey(ts);
        Long before = known.floorKey(ts);
        boolean near = next != null && next - ts <= settings.gap() || before != null && ts - before <= settings.gap();
        if (!near) {
            return false;
        }
        TreeMap<Long, List<String>> with = new TreeMap<>(known);
        with.put(ts, List.of());
        for (long[] session : sessions(with)) {
            if (session[0] <= ts && ts <= session[1]) {
                return session[1] > over;
            }
        }
        return false;
    }

    /** First and last event of every session, in their order. */
    private List<long[]> sessions(TreeMap<Long, List<String>> known) {
        List<long[]> sessions = new ArrayList<>();
        long[] session = null;
        for (long ts : known.keySet()) {
            if (session == null || ts - session[1] > settings.gap() || ts - session[0] > settings.longest()) {
                session = new long[] {ts, ts};
                sessions.add(session);
            }
            session[1] = ts;
        }
        return sessions;
    }
}

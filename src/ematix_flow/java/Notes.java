package ematix.flow;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;

/**
 * What is remembered of a key as one text: the time of the timer that is set, then a line for each thing, with a letter
 * for its kind, its time and what it is.
 */
final class Notes {
    static final long NEVER = Long.MAX_VALUE;

    /** When the timer that is set goes off. */
    long wake = NEVER;

    private final TreeMap<Character, TreeMap<Long, List<String>>> kinds = new TreeMap<>();

    /** Reads a text; without one nothing is remembered. */
    Notes(String text) {
        if (text == null) {
            return;
        }
        int end = text.indexOf('\n');
        wake = Long.parseLong(text, 0, end, 10);
        while (end >= 0) {
            int begin = end + 1;
            int space = text.indexOf(' ', begin);
            end = text.indexOf('\n', space);
            long time = Long.parseLong(text, begin + 1, space, 10);
            add(text.charAt(begin), time, end < 0 ? text.substring(space + 1) : text.substring(space + 1, end));
        }
    }

    /** What is remembered of a kind, by its times. */
    TreeMap<Long, List<String>> of(char kind) {
        return kinds.computeIfAbsent(kind, any -> new TreeMap<>());
    }

    void add(char kind, long time, String what) {
        of(kind).computeIfAbsent(time, any -> new ArrayList<>(1)).add(what);
    }

    boolean isEmpty() {
        return kinds.values().stream().allMatch(TreeMap::isEmpty);
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder(128).append(wake);
        kinds.forEach((kind, times) -> times.forEach((time, all) -> {
            for (String what : all) {
                text.append('\n').append(kind.charValue()).append(time.longValue()).append(' ').append(what);
            }
        }));
        return text.toString();
    }
}

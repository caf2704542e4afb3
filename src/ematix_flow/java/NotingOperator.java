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

/**
 * An operator that remembers one text for each key, and has one timer for it.
 *
 * <p>A map of the state would be read by a scan, which passes everything that was removed since the files were compacted:
 * a key that is not there costs as much as all that have left. The text of a key is looked up.
 */
abstract class NotingOperator extends StateOperator {
    private transient ValueState<String> state;

    NotingOperator(Settings settings) {
        super(settings);
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
        state = getHandle().getValueState("notes", Encoders.STRING(), TTLConfig.NONE());
    }

    @Override
    List<Row> results(String key, Iterator<Row> rows, long watermark) {
        Notes notes = new Notes(state.get());
        List<Row> results = new ArrayList<>();
        long next = added(key, sorted(rows), watermark, notes, results);
        if (next < notes.wake) {
            wakeAt(next);
            notes.wake = next;
        }
        write(notes);
        return results;
    }

    @Override
    List<Row> expired(String key, long watermark) {
        Notes notes = new Notes(state.get());
        List<Row> results = new ArrayList<>();
        notes.wake = ended(key, watermark, notes, results);
        if (notes.wake != Notes.NEVER) {
            wakeAt(notes.wake);
        }
        write(notes);
        return results;
    }

    /** Takes up events in the order of their times; returns when the first of what is remembered then will be over. */
    abstract long added(String key, List<Row> events, long watermark, Notes notes, List<Row> results);

    /** Gives out and forgets what is over; returns when the first of what is left will be. */
    abstract long ended(String key, long watermark, Notes notes, List<Row> results);

    private void write(Notes notes) {
        if (notes.isEmpty()) {
            state.clear();
        } else {
            state.update(notes.toString());
        }
    }
}

package ematix.flow;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.util.LineReader;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Ranges of a stream as the source of a query: the lines of the files below folder/RANGE.
 *
 * <p>Whoever runs the stream writes the files of a range, once and under a name of its own, and offers that then. So a
 * query reads one range after the other, and the same lines when it reads one again, whoever else has written some. Readers
 * of Python would need a process that has ten seconds to start, which is not enough on a busy machine.
 *
 * <p>With the option `events` a line is an event of a state: its numbers and texts, with tabs between them. As
 * objects of JSON, which have another one as their values, they took several times as long to write and to read.
 */
public final class StreamRanges implements TableProvider {
    private static final StructType LINES = new StructType().add("line", DataTypes.StringType);

    /** The events of a state, and the time up to which all of them are known, which one line of a range has. */
    private static final StructType EVENTS = new StructType()
            .add("start", DataTypes.LongType)
            .add("end", DataTypes.LongType)
            .add("ts", DataTypes.LongType)
            .add("watermark", DataTypes.LongType)
            .add("side", DataTypes.StringType)
            .add("key", DataTypes.StringType)
            .add("block", DataTypes.StringType);

    /** How many fields of an event are numbers; they come first. */
    private static final int NUMBERS = 4;

    private static final Map<String, String> OFFERED = new ConcurrentHashMap<>();

    private static final String NONE = "0";

    /** Lets queries over a folder read a range, after they have read the one that was offered before. */
    public static void offer(String folder, String range) {
        OFFERED.put(folder, range);
    }

    /** Forgets a folder. */
    public static void forget(String folder) {
        OFFERED.remove(folder);
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return options.getBoolean("events", false) ? EVENTS : LINES;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new RangeTable(new CaseInsensitiveStringMap(properties).get("folder"), schema);
    }

    private record RangeTable(String folder, StructType schema) implements SupportsRead {
        @Override
        public String name() {
            return "ranges";
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.MICRO_BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new RangeScan(folder, schema);
        }
    }

    private record RangeScan(String folder, StructType readSchema) implements Scan {
        @Override
        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new RangeStream(folder, readSchema.equals(EVENTS));
        }
    }

    private static final class RangeOffset extends Offset {
        private final String range;

        RangeOffset(String range) {
            this.range = range;
        }

        @Override
        public String json() {
            return range;
        }
    }

    private record RangeStream(String folder, boolean events) implements MicroBatchStream {
        @Override
        public Offset initialOffset() {
            return new RangeOffset(NONE);
        }

        @Override
        public Offset latestOffset() {
            return new RangeOffset(OFFERED.getOrDefault(folder, NONE));
        }

        @Override
        public Offset deserializeOffset(String json) {
            return new RangeOffset(json.trim());
        }

        @Override
        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            List<InputPartition> files = new ArrayList<>();
            if (start.equals(end)) {
                return new InputPartition[0];
            }
            try {
                Path path = new Path(folder, ((RangeOffset) end).range);
                for (FileStatus file : fileSystem(path).listStatus(path)) {
                    if (file.getPath().getName().startsWith("part-") && file.getLen() > 0) {
                        files.add(new RangeFile(file.getPath().toString()));
                    }
                }
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
            return files.toArray(new InputPartition[0]);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new RangeReaderFactory(events);
        }

        @Override
        public void commit(Offset end) {}

        @Override
        public void stop() {}
    }

    private record RangeFile(String path) implements InputPartition {}

    private record RangeReaderFactory(boolean events) implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            try {
                return new RangeReader(((RangeFile) partition).path(), events);
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    private static final class RangeReader implements PartitionReader<InternalRow> {
        private final LineReader lines;
        private final boolean events;
        private final Text line = new Text();

        RangeReader(String file, boolean events) throws IOException {
            Path path = new Path(file);
            this.lines = new LineReader(fileSystem(path).open(path), new byte[] {'\n'});
            this.events = events;
        }

        @Override
        public boolean next() throws IOException {
            return lines.readLine(line) > 0;
        }

        @Override
        public InternalRow get() {
            return new GenericInternalRow(events ? event() : new Object[] {text(0, line.getLength())});
        }

        @Override
        public void close() throws IOException {
            lines.close();
        }

        /** The fields of a line: numbers may be missing, and the last text is all that is left of the line. */
        private Object[] event() {
            byte[] bytes = line.getBytes();
            Object[] fields = new Object[EVENTS.length()];
            int begin = 0;
            for (int index = 0; index < fields.length; index++) {
                int end = index == fields.length - 1 ? line.getLength() : begin;
                while (end < line.getLength() && bytes[end] != '\t') {
                    end++;
                }
                UTF8String.LongWrapper number = new UTF8String.LongWrapper();
                boolean isNumber = index < NUMBERS && begin < end;
                if (begin > line.getLength() || isNumber && !text(begin, end).toLong(number)) {
                    throw new IllegalStateException("Malformed event: " + line);
                }
                fields[index] = isNumber ? number.value : index < NUMBERS ? null : text(begin, end);
                begin = end + 1;
            }
            return fields;
        }

        private UTF8String text(int begin, int end) {
            return UTF8String.fromBytes(Arrays.copyOfRange(line.getBytes(), begin, end));
        }
    }

    private static FileSystem fileSystem(Path path) throws IOException {
        return path.getFileSystem(SparkHadoopUtil.get().conf());
    }
}

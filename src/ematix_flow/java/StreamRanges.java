package ematix.flow;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
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
 * query reads one range after the other, and the same lines when it reads one again, whoever else has written some. Readers of Python would need a process that has ten seconds
 * to start, which is not enough on a busy machine.
 */
public final class StreamRanges implements TableProvider {
    private static final StructType SCHEMA = new StructType().add("line", DataTypes.StringType);
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
        return SCHEMA;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new RangeTable(new CaseInsensitiveStringMap(properties).get("folder"));
    }

    private record RangeTable(String folder) implements SupportsRead {
        @Override
        public String name() {
            return "ranges";
        }

        @Override
        @SuppressWarnings("deprecation")
        public StructType schema() {
            return SCHEMA;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.MICRO_BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new RangeScan(folder);
        }
    }

    private record RangeScan(String folder) implements Scan {
        @Override
        public StructType readSchema() {
            return SCHEMA;
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new RangeStream(folder);
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

    private record RangeStream(String folder) implements MicroBatchStream {
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
            return new RangeReaderFactory();
        }

        @Override
        public void commit(Offset end) {}

        @Override
        public void stop() {}
    }

    private record RangeFile(String path) implements InputPartition {}

    private record RangeReaderFactory() implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            try {
                return new RangeReader(((RangeFile) partition).path());
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    private static final class RangeReader implements PartitionReader<InternalRow> {
        private final BufferedReader lines;
        private String line;

        RangeReader(String file) throws IOException {
            Path path = new Path(file);
            lines = new BufferedReader(new InputStreamReader(fileSystem(path).open(path), StandardCharsets.UTF_8));
        }

        @Override
        public boolean next() throws IOException {
            line = lines.readLine();
            return line != null;
        }

        @Override
        public InternalRow get() {
            return new GenericInternalRow(new Object[] {UTF8String.fromString(line)});
        }

        @Override
        public void close() throws IOException {
            lines.close();
        }
    }

    private static FileSystem fileSystem(Path path) throws IOException {
        return path.getFileSystem(SparkHadoopUtil.get().conf());
    }
}

package ematix.flow;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * The log of a Delta table in a bucket, where a commit is written on the condition that there is none with its number.
 *
 * <p>Delta's own store for S3 looks first and writes then, which is safe within one driver. Here the service decides
 * which of two drivers wins. After a lost answer the bytes of the object tell whose it is.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
    private static final String CONDITION = "fs.option.create.conditional.overwrite";

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        if (overwrite) {
            super.write(path, actions, true, configuration);
            return;
        }
        byte[] data = bytesOf(actions);
        FileSystem files = path.getFileSystem(configuration);
        try {
            create(files, path, data);
        } catch (IOException error) {
            byte[] found = read(files, path);
            if (found == null) {
                throw error;
            }
            if (!Arrays.equals(found, data)) {
                FileAlreadyExistsException taken = new FileAlreadyExistsException(path.toString());
                taken.initCause(error);
                throw taken;
            }
        }
    }

    private static byte[] bytesOf(Iterator<String> actions) throws IOException {
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            data.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return data.toByteArray();
    }

    /** A file system that does not know the condition refuses it, instead of writing without. */
    private static void create(FileSystem files, Path path, byte[] data) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path);
        builder.create();
        builder.overwrite(false);
        builder.recursive();
        builder.must(CONDITION, true);
        FSDataOutputStream stream = builder.build();
        try {
            stream.write(data);
        } catch (IOException | RuntimeException error) {
            // To close it would write what it has.
            stream.abort();
            throw error;
        }
        stream.close();
    }

    private static byte[] read(FileSystem files, Path path) throws IOException {
        try (FSDataInputStream stream = files.open(path)) {
            return stream.readAllBytes();
        } catch (FileNotFoundException error) {
            return null;
        }
    }
}

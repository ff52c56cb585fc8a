import java.util.List;
import org.pytorch.serve.archive.model.ModelArchive;

/** Tells, of each file in a model store, whether the server's own classes find a valid model in it. */
public class ReadArchives {
    public static void main(String[] words) {
        for (int number = 1; number < words.length; number++) {
            System.out.println(words[number] + "\t" + read(words[0], words[number]));
        }
    }

    private static String read(String store, String name) {
        try {
            ModelArchive archive = ModelArchive.downloadModel(List.of("file://.*"), store, name);
            archive.getManifest().getModel().setModelVersion("1.0"); // registering does so where there is none
            archive.validate();
            boolean handled = archive.getHandler() != null;
            archive.clean();
            return handled ? "taken" : "refused";
        } catch (Throwable error) {
            return "refused";
        }
    }
}

import com.google.protobuf.ByteString;
import com.google.protobuf.Empty;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.net.InetSocketAddress;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.pytorch.serve.grpc.inference.InferenceAPIsServiceGrpc;
import org.pytorch.serve.grpc.inference.PredictionResponse;
import org.pytorch.serve.grpc.inference.PredictionsRequest;
import org.pytorch.serve.grpc.openinference.GRPCInferenceServiceGrpc;
import org.pytorch.serve.grpc.openinference.OpenInferenceGrpc.InferTensorContents;
import org.pytorch.serve.grpc.openinference.OpenInferenceGrpc.ModelInferRequest;
import org.pytorch.serve.grpc.openinference.OpenInferenceGrpc.ModelReadyRequest;
import org.pytorch.serve.grpc.openinference.OpenInferenceGrpc.ServerLiveRequest;

/** Calls a server with the stubs in TorchServe's own JAR, and prints a line for each call. */
public class CallGrpc {
    public static void main(String[] words) {
        // A target would be resolved: the JAR lists only the resolver of Unix sockets.
        var address = new InetSocketAddress(words[0], Integer.parseInt(words[1]));
        ManagedChannel channel = NettyChannelBuilder.forAddress(address).usePlaintext().build();
        var predictions =
                InferenceAPIsServiceGrpc.newBlockingStub(channel).withDeadlineAfter(30, TimeUnit.SECONDS);
        var tensors = GRPCInferenceServiceGrpc.newBlockingStub(channel);

        print("Ping", () -> predictions.ping(Empty.getDefaultInstance()).getHealth().replace("\n", ""));
        print("Predictions", () -> text(predictions.predictions(predict("echo", "words"))));
        print("StreamPredictions", () -> joined(predictions.streamPredictions(predict("stream", "words"))));
        print("absent", () -> text(predictions.predictions(predict("absent", "words"))));
        print("failure", () -> text(predictions.predictions(predict("echo", "raise"))));
        print("ServerLive", () -> tensors.serverLive(ServerLiveRequest.getDefaultInstance()).getLive());
        var ready = ModelReadyRequest.newBuilder().setName("echo").build();
        print("ModelReady", () -> tensors.modelReady(ready).getReady());
        print("ModelInfer", () -> tensors.modelInfer(infer()).getOutputs(0).getContents().getFp32ContentsList());
        channel.shutdownNow();
    }

    private static PredictionsRequest predict(String model, String text) {
        var request = PredictionsRequest.newBuilder().setModelName(model);
        return request.putInput("data", ByteString.copyFromUtf8(text)).build();
    }

    private static ModelInferRequest infer() {
        var request = ModelInferRequest.newBuilder().setModelName("tensors").setId("mine");
        var tensor = request.addInputsBuilder().setName("x").setDatatype("FP32").addShape(2);
        tensor.setContents(InferTensorContents.newBuilder().addFp32Contents(0.5f).addFp32Contents(-2));
        return request.build();
    }

    private static String text(PredictionResponse response) {
        return response.getPrediction().toStringUtf8();
    }

    private static String joined(Iterator<PredictionResponse> responses) {
        StringBuilder all = new StringBuilder();
        responses.forEachRemaining(response -> all.append(text(response)).append("|"));
        return all.toString();
    }

    private static void print(String name, Supplier<Object> call) {
        Object told;
        try {
            told = call.get();
        } catch (StatusRuntimeException error) {
            told = error.getStatus().getCode() + " " + error.getStatus().getDescription().split("\n")[0];
        }
        System.out.println(name + "\t" + told);
    }
}

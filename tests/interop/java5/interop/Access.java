package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.acl.common.AclSigner;
import org.apache.rocketmq.auth.authentication.builder.DefaultAuthenticationContextBuilder;
import org.apache.rocketmq.auth.authentication.context.DefaultAuthenticationContext;
import org.apache.rocketmq.auth.authentication.enums.UserStatus;
import org.apache.rocketmq.auth.authentication.enums.UserType;
import org.apache.rocketmq.auth.authentication.model.Subject;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authentication.provider.AuthenticationMetadataProvider;
import org.apache.rocketmq.auth.authorization.AuthorizationEvaluator;
import org.apache.rocketmq.auth.authorization.builder.DefaultAuthorizationContextBuilder;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.exception.AuthorizationException;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.model.Resource;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.auth.converter.AclConverter;
import org.apache.rocketmq.common.action.Action;
import org.apache.rocketmq.common.resource.RocketMQResource;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestHeaderRegistry;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;

/**
 * Asks the official `auth` module; its other half is official_access.py.
 *
 * <p>A line of input is a JSON object, a line of output its answer. "decide": a user, its access list and requests; the
 * answer is a list of texts, empty for allowed, else the refusal. "rights": a request; the answer is the list of
 * {resource, actions} that it needs, or {refused}. "content": a request; the bytes that are signed, and the signature.
 */
public final class Access {
    private static final String CLUSTER = "DefaultCluster";
    private static User user;
    private static Acl acl;

    private Access() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter output = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        System.setOut(System.err); // the software's logging writes to it
        RequestHeaderRegistry.getInstance().initialize();
        AuthConfig config = new AuthConfig();
        config.setConfigName("compared");
        config.setClusterName(CLUSTER);
        config.setAuthorizationEnabled(true);
        config.setAuthenticationMetadataProvider(Users.class.getName());
        config.setAuthorizationMetadataProvider(Acls.class.getName());
        AuthorizationEvaluator evaluator = new AuthorizationEvaluator(config);
        DefaultAuthorizationContextBuilder builder = new DefaultAuthorizationContextBuilder(config);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.isEmpty()) {
                output.flush();
                continue;
            }
            JSONObject question = JSON.parseObject(line);
            Object answer;
            switch (question.getString("kind")) {
                case "decide":
                    answer = decide(evaluator, question);
                    break;
                case "rights":
                    answer = rights(builder, question);
                    break;
                default:
                    answer = content(question);
            }
            output.append(JSON.toJSONString(answer)).append('\n');
        }
        output.flush();
    }

    private static Object decide(AuthorizationEvaluator evaluator, JSONObject question) {
        user = User.of(question.getString("username"), "secret", UserType.getByName(question.getString("userType")));
        user.setUserStatus(UserStatus.ENABLE);
        JSONObject list = question.getJSONObject("acl");
        acl = list == null ? null : AclConverter.convertAcl(list.to(AclInfo.class));
        List<String> answers = new ArrayList<>();
        for (Object each : question.getJSONArray("requests")) {
            JSONObject request = (JSONObject) each;
            List<Action> actions = request.getJSONArray("actions").stream()
                .map(name -> Action.getByName((String) name)).collect(Collectors.toList());
            DefaultAuthorizationContext context = DefaultAuthorizationContext.of(User.of(user.getUsername()),
                Resource.of(request.getString("resource")), actions, request.getString("source"));
            context.setRpcCode("10");
            try {
                evaluator.evaluate(Collections.singletonList(context));
                answers.add("");
            } catch (AuthorizationException refusal) {
                answers.add(refusal.getMessage());
            }
        }
        return answers;
    }

    private static Object rights(DefaultAuthorizationContextBuilder builder, JSONObject question) {
        JSONObject answer = new JSONObject();
        RemotingCommand command = command(question);
        fillOtherFields(command);
        try {
            JSONArray needed = new JSONArray();
            for (DefaultAuthorizationContext context : builder.build(channel(), command)) {
                JSONObject right = new JSONObject();
                right.put("resource", context.getResource().getResourceKey());
                right.put("actions",
                    context.getActions().stream().map(Action::getName).collect(Collectors.toList()));
                needed.add(right);
            }
            answer.put("needed", needed);
        } catch (AuthorizationException refusal) {
            answer.put("refused", String.valueOf(refusal.getCause()));
        }
        return answer;
    }

    private static Object content(JSONObject question) {
        DefaultAuthenticationContext context =
            new DefaultAuthenticationContextBuilder().build(channel(), command(question));
        JSONObject answer = new JSONObject();
        byte[] content = context.getContent() == null ? new byte[0] : context.getContent();
        answer.put("content", Base64.getEncoder().encodeToString(content));
        answer.put("signature", AclSigner.calSignature(content, question.getString("secret")));
        return answer;
    }

    private static RemotingCommand command(JSONObject question) {
        RemotingCommand command = RemotingCommand.createRequestCommand(question.getIntValue("code"), null);
        command.setVersion(question.getIntValue("version"));
        HashMap<String, String> fields = new HashMap<>();
        question.getJSONObject("fields").forEach((name, value) -> fields.put(name, (String) value));
        command.setExtFields(fields);
        String body = question.getString("body");
        if (body != null) {
            command.setBody(Base64.getDecoder().decode(body));
        }
        return command;
    }

    /** Gives the fields of a header that name no resource a value: the header class wants them. */
    private static void fillOtherFields(RemotingCommand command) {
        Class<? extends CommandCustomHeader> type =
            RequestHeaderRegistry.getInstance().getRequestHeader(command.getCode());
        for (Class<?> each = type; each != null && each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (field.getAnnotation(RocketMQResource.class) == null && !Modifier.isStatic(field.getModifiers())) {
                    boolean isFlag = field.getType() == Boolean.class || field.getType() == boolean.class;
                    command.getExtFields().putIfAbsent(field.getName(), isFlag ? "true" : "1");
                }
            }
        }
    }

    private static ChannelHandlerContext channel() {
        return new EmbeddedChannel(new ChannelInboundHandlerAdapter()).pipeline().firstContext();
    }

    /** The one user of a question. */
    public static final class Users implements AuthenticationMetadataProvider {
        @Override
        public void initialize(AuthConfig config, Supplier<?> metadataService) {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public CompletableFuture<Void> createUser(User created) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> deleteUser(String username) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> updateUser(User updated) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<User> getUser(String username) {
            return CompletableFuture.completedFuture(user);
        }

        @Override
        public CompletableFuture<List<User>> listUser(String filter) {
            throw new UnsupportedOperationException();
        }
    }

    /** Its access list. */
    public static final class Acls implements AuthorizationMetadataProvider {
        @Override
        public void initialize(AuthConfig config, Supplier<?> metadataService) {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public CompletableFuture<Void> createAcl(Acl created) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> deleteAcl(Subject subject) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> updateAcl(Acl updated) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Acl> getAcl(Subject subject) {
            return CompletableFuture.completedFuture(acl);
        }

        @Override
        public CompletableFuture<List<Acl>> listAcl(String subjectFilter, String resourceFilter) {
            throw new UnsupportedOperationException();
        }
    }
}

"""Networks, tokenizers and environments of libraries: verdicts are the same where the library is installed and where it is not.
What needs a download is a stand-in, and so is all of a library that is not installed."""

import gymnasium
import timm
import torch
import torchvision
from transformers import AutoModel, AutoTokenizer


def plain_network(loader):
    model = torchvision.models.squeezenet1_1(num_classes=10)
    model.eval()
    outputs = []
    for x in loader:
        outputs.append(model(x))  # verdict: TML102 confirmed graph per step
    return outputs


def network_with_weights(loader):
    model = torchvision.models.resnet18(pretrained=True)
    model.eval()
    outputs = []
    for x in loader:
        outputs.append(model(x))  # verdict: TML102 confirmed graph per step
    return outputs


def factory(loader):
    model = timm.create_model("resnet18", pretrained=True, num_classes=0)
    model.eval()
    features = []
    for x in loader:
        with torch.no_grad():
            features.append(model(x))  # verdict: TML102 refuted
    return features


def sentences(texts):
    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    model = AutoModel.from_pretrained("bert-base-uncased")
    vectors = []
    for text in texts:
        batch = tokenizer(text, return_tensors="pt", padding=True, truncation=True)
        vectors.append(model(**batch).last_hidden_state[:, 0])  # verdict: TML102 confirmed graph per step
    return vectors


def episode():
    env = gymnasium.make("CartPole-v1")
    policy = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    state, _ = env.reset()
    kept = []
    for _ in range(100):
        scores = policy(torch.as_tensor(state, dtype=torch.float32))
        kept.append(scores)  # verdict: TML102 confirmed whole graph per step
        state, reward, done, truncated, _ = env.step(scores.argmax().item())
        if done or truncated:
            state, _ = env.reset()
    return len(kept)

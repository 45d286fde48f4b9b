"""One callback in `transformers.Trainer`: a ViT learns scikit-learn's digits and keeps 60 % of its FLOPs."""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from trainonce.integrations.transformers import TrainOnceCallback, load

out = sys.argv[1] if len(sys.argv) > 1 else "runs/vit"
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
labels = torch.tensor(digits.target)
data = [{"pixel_values": image, "labels": label} for image, label in zip(images, labels, strict=True)]

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
config = ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes)
callback = TrainOnceCallback(keep_flops=0.6)
settings = {"num_train_epochs": 25, "per_device_train_batch_size": 64, "learning_rate": 3e-3}
trainer = Trainer(
    ViTForImageClassification(config),
    TrainingArguments(out, **settings, report_to=[], disable_tqdm=True),
    train_dataset=data[:1437],
    callbacks=[callback],
)
trainer.train()  # after a crash: trainer.train(resume_from_checkpoint=True)
trainer.save_model(f"{out}/small")

small = load(f"{out}/small")
with torch.no_grad():
    accuracy = (small(images[1437:]).logits.argmax(1) == labels[1437:]).float().mean()
print(f"{accuracy:.1%} accuracy on unseen images, with {callback.pruner.keep_now:.1%} of the FLOPs")

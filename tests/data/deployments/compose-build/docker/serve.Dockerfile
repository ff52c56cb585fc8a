FROM pytorch/torchserve:0.8.2-cpu
COPY ./upper.mar /home/model-server/model-store/
CMD ["bash", "-c", "torchserve --start --model-store=/home/model-server/model-store --models upper=upper.mar && sleep infinity"]

# Railbed in a container: for macOS and Windows, whose engines run containers in a
# virtual machine with Linux, and for hosts on which nothing is to be installed.
#
#     docker build -t railbed .
#     docker run --rm -v "$PWD/out:/railbed/out" --cap-add SYS_ADMIN --cap-add NET_ADMIN \
#         --cap-add SYS_NICE --security-opt apparmor=unconfined railbed
#
# The README says what each is for. scripts/image makes it without a registry.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build

FROM ${BASE_IMAGE}
# What people run in nodes; Railbed itself is one static program.
RUN apt-get update \
	&& apt-get install -y --no-install-recommends iproute2 iputils-ping traceroute tcpdump iperf3 procps \
	&& rm -rf /var/lib/apt/lists/*
COPY --from=build /src/bin/railbed /usr/local/bin/railbed
COPY scenarios /usr/share/railbed/scenarios
WORKDIR /railbed
ENTRYPOINT ["railbed"]
CMD ["run", "/usr/share/railbed/scenarios/quickstart.yaml", "--out", "out/quickstart"]

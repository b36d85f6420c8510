data {
  int N;
  int D;
  matrix[N, D] X;
  array[N] int y;
}
parameters {
  vector[D] beta;
}
model {
  beta ~ std_normal();
  y ~ bernoulli_logit(X * beta);
}

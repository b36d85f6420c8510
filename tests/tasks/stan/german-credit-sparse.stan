data {
  int N;
  int D;
  matrix[N, D] X;
  array[N] int y;
}
parameters {
  real<lower=0> tau;
  vector<lower=0>[D] lambda;
  vector[D] beta;
}
model {
  tau ~ gamma(0.5, 0.5);
  lambda ~ gamma(0.5, 0.5);
  beta ~ std_normal();
  y ~ bernoulli_logit(X * (tau * (beta .* lambda)));
}

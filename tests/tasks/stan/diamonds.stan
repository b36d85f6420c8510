data {
  int N;
  int K;
  matrix[N, K] X;
  vector[N] Y;
}
transformed data {
  matrix[N, K - 1] centred;
  for (j in 2 : K) {
    centred[ : , j - 1] = X[ : , j] - mean(X[ : , j]);
  }
}
parameters {
  vector[K - 1] b;
  real Intercept;
  real<lower=0> sigma;
}
model {
  b ~ std_normal();
  Intercept ~ student_t(3, 8, 10);
  sigma ~ student_t(3, 0, 10);
  Y ~ normal(Intercept + centred * b, sigma);
}
